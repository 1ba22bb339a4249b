"""`make bench`: how fast the grader is, beside stock nbgrader in the same run, and beside the least it could cost."""
