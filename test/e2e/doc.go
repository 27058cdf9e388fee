// Package e2e owns the tests of the whole product: the real daemon in a lab of network namespaces,
// with real clients, devices and servers, one file a feature. It knows the daemon only by its
// command line, its configuration, its admin socket and the packets on its links.
package e2e
