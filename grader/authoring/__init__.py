"""From the masters in solutions/ to the instructor's and the student's editions."""
