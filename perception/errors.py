"""The one exception whose message is meant for the person at the keyboard."""


class UserError(Exception):
    """Something the user can mend. The command line prints the message as one line and exits with code 2."""
