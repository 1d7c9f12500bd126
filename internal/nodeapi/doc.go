// Package nodeapi is what the device plugin says to an API server, and hears
// from it, where one is configured: events about cards on the Node object, and
// the label that chooses a configuration. Nothing waits for the API server;
// without it a node serves its cards all the same.
package nodeapi
