"""Build, release, check and grade the notebooks of this course."""
