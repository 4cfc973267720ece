// Package slim makes what the cache holds small: a cluster may have ten thousand Servers, with as many
// Pods, and ten thousand ElasticServices. Parts that are equal become one, and of some kinds fields
// that nobody reads are dropped. What it makes is the cache's, and must not be changed.
package slim
