"""Races: two sides act on one run at the same time, thousands of times, and every order of events is counted."""
