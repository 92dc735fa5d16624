"""The door for clients of PyLogStreams: a frame is a length and a line of text."""
