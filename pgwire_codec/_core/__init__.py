"""The compiled codec, the counterpart of :mod:`pgwire_codec.reference`."""
