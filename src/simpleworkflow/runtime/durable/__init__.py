"""Durable calls: what is on record is returned, what is not is done and recorded.

A call is a plain function that takes its identity at once and returns a coroutine (memo.py); steps.py, timers.py,
signals.py, values.py, children.py, races.py and telling.py are the kinds of calls; calls.py holds them together.
"""
