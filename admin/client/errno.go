package client

import "syscall"

// What connect(2) says when there is no daemon, or none for this user.
const (
	errNoSocket = syscall.ENOENT
	errRefused  = syscall.ECONNREFUSED
	errDenied   = syscall.EACCES
)
