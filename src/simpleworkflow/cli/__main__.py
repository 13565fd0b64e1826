"""`python -m simpleworkflow.cli`"""

from .main import main

main()
