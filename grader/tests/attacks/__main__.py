"""`python -m grader.tests.attacks`: write SIBLINGS.md from the definitions."""

from grader.tests.attacks.school import write_table

print(write_table())
