"""Wrong solutions of the chapters, and the framework that shows which test cell catches each."""
