package conditions

// Complete is the condition of a Backup and of a Restore. It is True once the copying has succeeded;
// else the reason and message say what it waits for, or why it failed.
const Complete = "Complete"
