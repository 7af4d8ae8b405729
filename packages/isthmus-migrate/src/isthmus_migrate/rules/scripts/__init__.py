"""Plans of changes of whole scripts: the script is understood as a program, and changed completely or not at all."""
