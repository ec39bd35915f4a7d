// Package shipping is a file system whose changes also go to a log, in the order in which they were made. A Sync
// returns when the file is durable on the disk and all changes before it are in the log. So the log is, after each
// entry, a state in which a power cut could have left the directory: who restores it can open it.
//
// An entry has changes and the octets of their writes. An Image is what the entries so far make of the directory; from
// time to time an entry begins with the image itself, and what no file needs of the entries before it is dropped.
package shipping
