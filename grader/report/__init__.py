"""The instructor's view of a graded class: report.html, and grades for Canvas and Moodle."""
