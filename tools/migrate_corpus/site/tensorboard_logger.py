"""Stand-in for the tensorboard_logger package that logs nothing."""


def configure(*arguments, **options):
    pass


def log_value(*arguments, **options):
    pass
