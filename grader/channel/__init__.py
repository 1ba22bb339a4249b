"""How values cross between the trusted process and a student's process: typed JSON in length-prefixed frames."""
