"""How a section of gpu-check ends other than well; the text is the reason."""


class Skipped(Exception):
    pass


class Failed(Exception):
    pass


class OutOfMemory(Failed):
    """A job that was accepted ran out of memory."""
