"""Grading a class: collect, rebuild, execute in worker processes, book by one writer, write results."""
