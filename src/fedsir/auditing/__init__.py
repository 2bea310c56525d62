"""Label audit: which clients' labels look wrong, which labels, and what a data owner does about them.

`fedsir.audit` works on arrays and `fedsir audit` on files; both end in one folder (`fedsir.auditing.folder`). The room
is not called `audit`, because `fedsir.audit` is the function.
"""
