// A player of the npm package minecraft-protocol: player.js ADDRESS PORT HOST NAME
// logs in at an address as if HOST had been typed, and prints how that ends as a line of JSON.
'use strict'
const net = require('node:net')
const minecraft = require('minecraft-protocol')

const [address, port, host, username] = process.argv.slice(2)
const player = minecraft.createClient({
  host,
  port: Number(port),
  username,
  version: '1.20.4',
  auth: 'offline',
  connect: (client) => client.setSocket(net.connect(Number(port), address))
})
const end = (what) => {
  console.log(JSON.stringify(what))
  process.exit(0)
}
player.once('success', () => end({ joined: true }))
player.once('disconnect', (packet) => end({ reason: String(packet.reason) }))
player.once('error', (err) => end({ error: String(err) }))
player.once('end', () => end({ error: 'the connection ended' }))
