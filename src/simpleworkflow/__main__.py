"""`python -m simpleworkflow`"""

from .cli import main

main()
