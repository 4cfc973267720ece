// Package serverfiles keeps what serves the files on Servers' disks over SFTP: for each Server, or
// place of a GameType, a Deployment at zero that the ElasticService beside it wakes when somebody
// connects to the Service. It must not change the Deployment's replicas but where the game needs the
// disk, nor touch an object that isn't its own, and it never reads the Secret with the users.
package serverfiles
