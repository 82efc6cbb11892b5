"""What runs on a pool's machines to stage inputs: plain files of Python's own library, for Python 3.9 on.

:mod:`isoline.runners.machine.nodes` sends their text to ``python3 -`` there, over SSH where it is another
machine: a node needs nothing installed. They import each other and the standard library, nothing else.
"""
