"""`python -m fedsir` is `fedsir`."""

from fedsir.cli import main

if __name__ == "__main__":
    main()
