package conditions

// Allocated is the condition of an Allocation. It is True while the Allocation has a Server, or
// places on one, and Unknown while it waits for one. Where it is False the reason and message say
// why there was none, or why it has it no more.
const Allocated = "Allocated"
