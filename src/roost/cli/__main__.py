"""`python -m roost.cli`"""

from roost.cli.main import main

main()
