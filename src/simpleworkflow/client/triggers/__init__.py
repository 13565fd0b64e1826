"""The road of a trigger: request, batch, commit, hint, across event loops and threads.

    app.trigger(ship, order)                     trigger_calls.py
      a checked NewRun                           request.py
      Triggers.create          which loop?       road.py
        ├─ this loop is the engine's, or has connections of its own
        └─ ThreadHop           to the engine     thread_hop.py
      TriggerBatcher           which batch?      batcher.py
        Batcher, Sorter        gather, flush     runtime/batch.py
      runs.create              the statements    store/operations/runs.py
      Hinter                   wake workers      runtime/hints.py

A commit costs far more than a run in it, so triggers that come at the same time share one. A hop between threads costs
more than a run in a batch, too: those that wait for the same hop share it, and a loop that triggers often gets
connections of its own. A trigger returns when its commit is durable; a hint follows, and may be lost, because workers
also poll. Closing answers every trigger that is under way, so that no caller waits for ever.
"""
