"""Hand-ins that a grader must survive: damaged, odd and hostile ones, each with the score that it earns.

`case.py` says what a case is, `structure.py`, `formats.py`, `running.py`, `files.py` and the hostile ones
(`reading.py`, `forging.py`, `lying.py`, `patching.py`, `breaking.py`) hold them, `school.py` grades them all as one
class. Hostile notebooks run in the sandbox only, never in the process of a test.
"""
