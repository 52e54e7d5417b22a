"""`python -m evoseek`: the command line, in the form that torchrun starts in several processes."""

from evoseek.cli.main import main

if __name__ == "__main__":
    main()
