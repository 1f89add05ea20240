"""Pictures and films of a catalogue, read as what they are: bytes of strangers.

A name is opened below a root and nowhere else (`paths`), its kind is told from its bytes (`sniff`), and it is decoded
in a child process that can open no file and has limits on memory and time (`pool`). What fails gives a reason.
"""
