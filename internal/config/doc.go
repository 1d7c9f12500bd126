// Package config reads the settings of every program: flags, then environment
// (NRI_GPU_ and the flag's name), then the YAML file of --config, then
// defaults; the first that is set wins.
//
// All four go through the same flag value, so a type error reads the same
// wherever it was made, and a key of the file is a flag's name, no more and no
// less. Every error is an *Error, which names the source, the key and the
// rule; programs exit with status 2 for it, before anything is written.
package config
