"""Other durable logs, each driven over its own protocol by a client of the same shape.

Every client holds one connection, sends bytes made beforehand and only counts answers: what a
real client costs differs from one language to the next and says nothing about the server.
"""
