package conditions

// Complete is the condition of a Backup and of a Restore. It is True when all was copied, False while
// it waits or copies and where it failed or was given up; the message says which, and what to change.
const Complete = "Complete"

// BackedUp is a condition of a Server and of a GameType with spec.backup. It is True when the last
// copy of each of their Servers succeeded, False when one failed or can't be made, and Unknown until
// there is a first one.
const BackedUp = "BackedUp"
