package service

import "sync/atomic"

// How many file descriptors a client takes, including its backend's.
const (
	FilesOfTCP = 2
	FilesOfUDP = 1
)

// Files is how many of the shared file descriptors are taken.
type Files struct{ n atomic.Int32 }

// Taken is how many are taken now.
func (f *Files) Taken() int { return int(f.n.Load()) }

// TakeFiles takes the files of a TCP client, which GiveFiles gives back; false: the share of
// own is used up.
func (s *Shared) TakeFiles(own *Files) bool { return s.files.Take(&own.n, FilesOfTCP) }

// GiveFiles gives back what TakeFiles took.
func (s *Shared) GiveFiles(own *Files) { s.files.Force(&own.n, -FilesOfTCP) }

// TakeConnection takes the files of a TCP client of the service, which GiveConnection gives
// back; false: there are none left for it.
func (s *Service) TakeConnection() bool { return s.files.Take(&s.ownFiles.n, FilesOfTCP) }

// GiveConnection gives back what TakeConnection took.
func (s *Service) GiveConnection() { s.files.Force(&s.ownFiles.n, -FilesOfTCP) }

// TakeSession takes a UDP session's place, which GiveSession gives back; false: there is none
// left for the service.
func (s *Service) TakeSession() bool {
	if !s.udpSessions.Take(&s.ownSessions, 1) {
		return false
	}
	if !s.files.Take(&s.ownFiles.n, FilesOfUDP) {
		s.udpSessions.Force(&s.ownSessions, -1)
		return false
	}
	return true
}

// ForceSession is TakeSession even where there is no place left.
func (s *Service) ForceSession() { s.forceSession(1) }

// GiveSession gives back what TakeSession or ForceSession took.
func (s *Service) GiveSession() { s.forceSession(-1) }

func (s *Service) forceSession(n int32) {
	s.udpSessions.Force(&s.ownSessions, n)
	s.files.Force(&s.ownFiles.n, n*FilesOfUDP)
}

// TakeFile counts the port's file; GiveFile undoes that. Each counts once.
func (p *Port) TakeFile() {
	if p.filed.CompareAndSwap(false, true) {
		p.files.Force(&p.portFiles, 1)
	}
}

// GiveFile undoes TakeFile.
func (p *Port) GiveFile() {
	if p.filed.CompareAndSwap(true, false) {
		p.files.Force(&p.portFiles, -1)
	}
}

// FilesTaken is how many files the service's clients have.
func (s *Service) FilesTaken() int { return s.ownFiles.Taken() }
