"""Pages for people: one HTML file each, which needs no network and no server.

Names of clients, classes and files are data that others wrote: templates escape them, drawings escape them, and a
content security policy lets no script run but the page's own.
"""
