// Package archtest owns the rules of the tree: who may import whom, how long a file may be, and that
// every package says what it is for. It has tests only.
package archtest
