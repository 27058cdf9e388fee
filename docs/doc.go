// Package docs owns the documents, and tests of what they promise: the README's configuration is good,
// and no link between documents is broken.
package docs
