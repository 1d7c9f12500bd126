// Package specgen turns an inventory and the driver's files into CDI specs.
//
// Generate is the start: from an inventory it makes the private specs of
// pkg/cdi, an inventory in which a card whose node is missing is unhealthy, and
// a report of what was looked for. Publish writes all three to the state
// directory. Flatten makes one spec of a public kind, for runtimes that inject
// by themselves.
//
// Generation reads the node and decides nothing by time or chance: the same
// node gives the same bytes.
package specgen
