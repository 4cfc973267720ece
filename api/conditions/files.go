package conditions

// FilesServed is a condition of a Server and of a GameType that has spec.files, and absent from
// others, such as a GameType with 0 replicas. It is True when clients of SFTP reach the files, which may sleep until one connects; its
// message says where. It is False when the objects for that can't be made or don't work, and its
// message says why.
const FilesServed = "FilesServed"
