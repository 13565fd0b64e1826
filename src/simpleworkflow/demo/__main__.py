"""`python -m simpleworkflow.demo`"""

import sys

from .main import main

sys.exit(main())
