"""stub"""
HELP = DESCRIPTION = "stub"
def configure(parser): pass
def run(arguments, reporter): return 0
