"""What a failure means: classes, whether a retry helps, and the evidence. Shared by events and enrichment.

* ``classes``: the classes, whether a rerun of the work is useful, and who has to act.
* ``kinds``: what an error of a client means, for the work (class) and for one call (verdict).
* ``libraries/``: the registry: one entry per client library.
* ``registry``: finds the kind of an exception object, or of an exception's printed type and message.
* ``conditions``: Spark's error conditions and SQLSTATEs.
* ``exit_codes``: exit codes of processes, and the reasons of cluster managers.
* ``texts``: patterns for messages, used only if nothing else decides.

Executors import ``kinds``, ``libraries`` and ``registry``, which therefore import only the standard library.
"""
