"""python -m lexome: the same as the command lexome."""

from lexome.cli import main

main()
