"""nbgrader's gradebook and course tree inside the out folder: the one writer's side of grading."""
