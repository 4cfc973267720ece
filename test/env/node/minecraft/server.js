// A Minecraft Java server of the npm package minecraft-protocol, for a container. It lets
// everybody in by any name, and keeps them.
'use strict'
const minecraft = require('minecraft-protocol')

minecraft.createServer({
  host: '0.0.0.0',
  port: 25565,
  version: '1.20.4',
  maxPlayers: 7,
  motd: 'A dormouse that is awake',
  'online-mode': false
})
process.on('SIGTERM', () => process.exit(0))
