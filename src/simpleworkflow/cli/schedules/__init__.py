"""Commands about schedules: list, write, pause, resume and delete them, run one now, start missed slots."""
