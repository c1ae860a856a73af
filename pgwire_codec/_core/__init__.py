"""The compiled codec: the twin of :mod:`pgwire_codec.reference`, module by module."""
