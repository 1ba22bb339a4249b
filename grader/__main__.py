"""`python -m grader`."""

import signal
import sys

from grader.cli import main

if __name__ == "__main__":
    try:
        code = main()
    except KeyboardInterrupt:  # a second one, while the first was being answered
        code = 130
    if code == 130:
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # nothing is left that one could stop
    sys.exit(code)
